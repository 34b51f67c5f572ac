"""Record batches: looking at them, making them, compressing them, and turning them into columns and back.

Where to start, by what you have in hand:

- bytes of batches, and only their headers matter: `batch` (a view per batch, walks over many, stamps, CRC-32C);
- single records to send: `builder`; a transaction marker: `control`; another codec for a batch: `recompress`;
- many records to read or write: `columns` and `columns_encode` (packed buffers, described in `packed`), `arrow` on top
  of them where pyarrow is installed, `aborted` for read_committed;
- a few records to look at, in a tool or a test: `decode` gives `record.Record` objects.

`layout` says where each header field lies; `compression` bounds what comes out of a batch, and `payload` names the
batch when it does not come out well. The compiled modules share their C in `wire.h` (numbers, headers), `record.h` (one
record) and `crc32c.h`, and their memory in `packed_buffer`. Nothing here does I/O, and nothing but `arrow` needs
pyarrow.
"""
