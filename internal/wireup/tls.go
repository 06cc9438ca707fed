package wireup

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// ErrTLS says that certificates of the wire-up cannot be used.
var ErrTLS = errors.New("TLS of the wire-up")

// LoadTLS reads what protects the way to the wire-up server: this process's
// certificate and key, and the certificates that others' must be signed by, all
// PEM files. Both sides show a certificate. That it is signed by the job's
// authority is what counts, not the name in it: ranks run on hosts that nobody
// knew when the certificates were made, and are told apart by the token.
func LoadTLS(cert, key, ca string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("wireup: %w: %w", ErrTLS, err)
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("wireup: %w: %w", ErrTLS, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("wireup: %w: no certificate in %s", ErrTLS, ca)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequireAnyClientCert,
		// The chain is verified below, on both sides, without the name.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return fmt.Errorf("%w: the other side shows no certificate", ErrTLS)
			}
			between := x509.NewCertPool()
			for _, c := range s.PeerCertificates[1:] {
				between.AddCert(c)
			}
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
				Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
			})
			if err != nil {
				err = fmt.Errorf("%w: %w", ErrTLS, err)
			}
			return err
		},
	}, nil
}
