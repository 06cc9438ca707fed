package wireup

import (
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxTokenFile bounds the bytes read from a token file.
const maxTokenFile = 4096

// ErrTokenFile means that other users can access a file with the job's secret.
var ErrTokenFile = fmt.Errorf("%w: other users can read the secret", ErrEnvironment)

// TokenFrom reads the job's secret from RMA_TOKEN, otherwise from the file in
// RMA_TOKEN_FILE; nil without either. Errors wrap ErrEnvironment and do not contain the
// secret.
func TokenFrom(get func(string) string) ([]byte, error) {
	if text := get(EnvToken); text != "" {
		return parseToken(text, EnvToken)
	}
	if path := get(EnvTokenFile); path != "" {
		return ReadToken(path, EnvTokenFile)
	}
	return nil, nil
}

// ReadToken is TokenFrom for the file at path, which setting names.
func ReadToken(path, setting string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("wireup: %w: %s: %w", ErrEnvironment, setting, err)
	}
	defer f.Close()
	from := setting + "=" + path
	if info, err := f.Stat(); err != nil {
		return nil, fmt.Errorf("wireup: %w: %s: %w", ErrEnvironment, setting, err)
	} else if openToOthers(info) {
		return nil, fmt.Errorf("wireup: %w: %s has mode %04o: chmod 600 (Kubernetes: defaultMode: 0400)", ErrTokenFile, from, info.Mode().Perm())
	}
	b, err := io.ReadAll(io.LimitReader(f, maxTokenFile))
	if err != nil {
		return nil, fmt.Errorf("wireup: %w: %s: %w", ErrEnvironment, setting, err)
	}
	text := strings.TrimSpace(string(b))
	if text == "" {
		return nil, fmt.Errorf("wireup: %w: %s is empty", ErrEnvironment, from)
	}
	return parseToken(text, from)
}

func parseToken(text, from string) ([]byte, error) {
	token, err := hex.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("wireup: %w: %s is not hexadecimal", ErrEnvironment, from)
	}
	return token, nil
}

// TLSFrom loads the files in RMA_TLS_CERT, RMA_TLS_KEY and RMA_TLS_CA; nil if none is set.
func TLSFrom(get func(string) string) (*tls.Config, error) {
	cert, key, ca := get(EnvTLSCert), get(EnvTLSKey), get(EnvTLSCA)
	switch {
	case cert == "" && key == "" && ca == "":
		return nil, nil
	case cert == "" || key == "" || ca == "":
		return nil, fmt.Errorf("wireup: %w: of %s, %s and %s all are needed, or none", ErrEnvironment, EnvTLSCert, EnvTLSKey, EnvTLSCA)
	}
	return LoadTLS(cert, key, ca)
}
