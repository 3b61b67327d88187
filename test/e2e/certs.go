package e2e

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs the certificates of one cluster and writes them into a folder.
type authority struct {
	dir    string
	cert   *x509.Certificate
	key    crypto.Signer
	serial int64
}

// newAuthority creates a certificate authority: ca.crt.
func newAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a.key = key
	a.cert = &x509.Certificate{
		Subject: pkix.Name{CommonName: "e2e"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if err := a.issue("ca", a.cert, key); err != nil {
		return nil, err
	}
	return a, nil
}

// client creates NAME.crt and NAME.key for a user of the API server.
func (a *authority) client(name, user string, groups ...string) error {
	return a.leaf(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups}, //nolint:misspell // X.509's name
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// server creates NAME.crt and NAME.key for a server on the loopback and on more addresses.
func (a *authority) server(name string, more ...net.IP) error {
	return a.leaf(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost"},
		IPAddresses: append(more, net.IPv4(127, 0, 0, 1), net.IPv6loopback),
	})
}

func (a *authority) leaf(name string, cert *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	cert.KeyUsage = x509.KeyUsageDigitalSignature
	return a.issue(name, cert, key)
}

// issue signs a certificate and writes it with its key.
func (a *authority) issue(name string, cert *x509.Certificate, key *ecdsa.PrivateKey) error {
	a.serial++
	cert.SerialNumber = big.NewInt(a.serial)
	cert.NotBefore, cert.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := a.write(name+".crt", "CERTIFICATE", der); err != nil {
		return err
	}
	return a.write(name+".key", "EC PRIVATE KEY", private)
}

func (a *authority) write(name, kind string, der []byte) error {
	return os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
