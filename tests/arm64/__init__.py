"""Ottla's kernels on 64-bit ARM: compiled by a cross compiler, and run by an emulator."""
