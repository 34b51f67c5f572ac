package commandloop

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
)

// Login is another listener than the program's own, and what a client needs there; nil if none is asked for.
type Login struct {
	Bootstrap   string `json:"bootstrap"`
	Authority   string `json:"authority"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
	Mechanism   string `json:"mechanism"`
	Username    string `json:"username"`
	Password    string `json:"password"`
	TokenFile   string `json:"token"`
}

// TLS is the configuration with the login's authority and certificate.
func (login *Login) TLS() (*tls.Config, error) {
	authority, err := os.ReadFile(login.Authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("no certificate in %s", login.Authority)
	}
	if login.Certificate != "" {
		own, err := tls.LoadX509KeyPair(login.Certificate, login.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// Token is the content of the token's file.
func (login *Login) Token() (string, error) {
	text, err := os.ReadFile(login.TokenFile)
	return strings.TrimSpace(string(text)), err
}
