"""The compiled kernels under the address sanitizer: `tests/fuzz/run` builds them apart and starts `kernels`."""
