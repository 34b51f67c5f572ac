"""TLS that the kernel encrypts, in an emulated machine."""
