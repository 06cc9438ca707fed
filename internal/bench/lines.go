package bench

import (
	"encoding/json"
	"io"
)

// WriteLines writes each row as an object of JSON on a line of its own.
func WriteLines[T any](w io.Writer, rows []T) error {
	enc := json.NewEncoder(w)
	for i := range rows {
		if err := enc.Encode(&rows[i]); err != nil {
			return err
		}
	}
	return nil
}
