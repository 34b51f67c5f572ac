"""Protocol Buffers as a schema language: `.proto` files of proto2, proto3 and editions.

A text becomes tokens (`tokens.py`), then a tree (`parsing.py`, `syntax_tree.py`). `symbols.py` finds what names mean,
`validation.py` refuses what protoc refuses. A valid tree has three uses: its canonical and normalized texts
(`canonical_text.py`), its FileDescriptorProto (`descriptors.py`, with `option_values.py` for options;
`descriptor_trees.py` is the way back), and the comparison with another schema (`compatibility.py`). `features.py` has
the features of editions, `known_files.py` the files that can be imported without a reference, `tags.py` the
tags of Confluent's options. `protobuf_schema.py` puts all together behind the interface of schema languages.

Parser and printer are written by hand: parsers from PyPI need 10 s for a file of 1 MB, and none resolves names.
"""
