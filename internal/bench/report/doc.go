// Package report renders measured results as one self-contained HTML page: curves of latency
// and bandwidth over message size, bars of message rates, and tables of all figures. Results
// of other machines (or of a virtual machine on this one) are shown as separate series.
//
// # Files
//
//	report.go   Report and the page
//	page.html   its template
//	lines.go    JSON lines of everything in a report
//	summary.go  summary of the most important figures, as text
//	series.go   which results form a curve, its name and colour
//	plots.go    drawings, their curves and bars, as SVG
//	choice.go   the page of heat maps; choice.html its template
//	compare.go  the page of ratios to other libraries; compare.html its template
//	curve.go    plots around the switches of the choice; curve.html their page
//	overlap.go  plots of communication during computation
//	nbc.go      heat maps of collective operations during computation
//	plogp.go    the page of sampled parameters; plogp.html its template
//
// It imports internal/bench and the plotting library.
package report
