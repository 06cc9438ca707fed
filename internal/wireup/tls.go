package wireup

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// ErrTLS means that certificates of the wire-up cannot be used.
var ErrTLS = errors.New("wire-up TLS failed")

// LoadTLS loads the TLS configuration of connections to the wire-up server: this process's
// certificate and key, and the certificates that must have signed those of others, all PEM
// files. Both sides present a certificate. It must be signed by the job's authority; its
// name does not matter, because the hosts of ranks are unknown when certificates are made,
// and the token identifies the job.
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
				return fmt.Errorf("%w: the other side sent no certificate", ErrTLS)
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
