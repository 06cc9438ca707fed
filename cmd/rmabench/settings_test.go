package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/settings"
)

func TestInfoSettings(t *testing.T) {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, settings.Prefix) {
			t.Setenv(name, "")
		}
	}
	path := filepath.Join(t.TempDir(), "rma.conf")
	require.NoError(t, os.WriteFile(path, []byte("fabric = tcp\ndepth = 64\n"), 0o600))
	t.Setenv("RMA_CONFIG", path)
	t.Setenv("RMA_DEPTH", "32")
	t.Setenv("RMA_TOKEN", "c0ffee")
	show := func(args ...string) (int, string, string) {
		var out, err bytes.Buffer
		code := run(context.Background(), append([]string{"info", "--settings"}, args...), streams{strings.NewReader(""), &out, &err})
		return code, out.String(), err.String()
	}
	code, out, errs := show()
	require.Zero(t, code)
	require.Empty(t, errs)
	require.Regexp(t, `(?m)^fabric +tcp +file \(`+path+`:1\)$`, out)
	require.Regexp(t, `(?m)^depth +32 +env \(RMA_DEPTH\)$`, out)
	require.Regexp(t, `(?m)^mode +auto +default$`, out)
	require.Regexp(t, `(?m)^ibv_device +\(the first usable one\) +default$`, out)
	require.Regexp(t, `(?m)^token +\(secret\) +env \(RMA_TOKEN\)$`, out)
	require.NotContains(t, out, "c0ffee")

	code, out, _ = show("--format", "json")
	require.Zero(t, code)
	var list []setting
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	require.Contains(t, list, setting{Name: "depth", Env: "RMA_DEPTH", Value: "32", Origin: "env", At: "RMA_DEPTH"})

	t.Setenv("RMA_MODE_TABLE", "4K=swift")
	code, out, errs = show()
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, `RMA_MODE_TABLE="4K=swift"`)
	require.Regexp(t, `(?m)^depth +32 +env`, out)
	t.Setenv("RMA_MODE_TABLE", "")

	t.Setenv("RMA_DEPTH", "many")
	t.Setenv("RMA_FABRIC", "")
	t.Setenv("RMA_TEST_X", "1")
	code, out, errs = show()
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, `RMA_DEPTH="many": want a number of requests`)
	require.Regexp(t, `(?m)^depth +64 +file`, out)
}
