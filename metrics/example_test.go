package metrics_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/metrics"
)

func ExampleNewCollector() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	reg := prometheus.NewRegistry()
	reg.MustRegister(metrics.NewCollector(eng, &metrics.Options{Labels: prometheus.Labels{"job_name": "stencil"}}))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))

	w := httptest.NewRecorder() // in a program: http.ListenAndServe
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "rma_job_ranks") {
			fmt.Print(line)
		}
	}
	// Output: rma_job_ranks{job_name="stencil",rank="0"} 1
}
