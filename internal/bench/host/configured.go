package host

import (
	"strings"

	"github.com/seed33544411/rma/internal/settings"
)

// configured looks at RMA_* variables and the settings file.
func configured(s System, _ Verbs) Finding {
	v, err := s.Settings()
	oneLine := func(err error) string {
		return strings.ReplaceAll(strings.ReplaceAll(err.Error(), "\n\t", "; "), ":;", ":")
	}
	switch {
	case err != nil:
		return bad(Fail, "docs/configuration.md lists what may be set; `rmabench info --settings` shows what is", "%s", oneLine(err))
	case len(v.Unknown) > 0:
		return bad(Warn, "correct or unset it; RMA_STRICT=1 makes such slips an error of Open", "%s", oneLine(v.Unknown))
	}
	n, from := 0, ""
	for _, x := range v.All() {
		if x.Origin != settings.Default && x.Group <= settings.Links {
			n++
		}
	}
	if v.File != "" {
		from = ", file " + v.File
	}
	return ok("%d not at their defaults%s (`rmabench info --settings`)", n, from)
}
