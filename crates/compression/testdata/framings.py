#!/usr/bin/env python3
"""Writes testdata/framings: one set of records, compressed by the libraries that clients use.

    pip install kafka-python==3.0.12 aiokafka==0.14.0 python-snappy==0.7.3 cramjam==2.14.0 \\
        lz4==4.4.5 zstandard==0.25.0
    python framings.py

The test `framings` makes the same records and compares.
"""
import gzip
import pathlib

import aiokafka.codec
import kafka.codec
import lz4.frame
import snappy
import zstandard


def varint(number):
    number = (number << 1) ^ (number >> 63)
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def record(index):
    key, value = b"key-%d" % (index % 10), b"line %d of a value that repeats; " % (index % 10) * 3
    body = b"\0" + varint(0) + varint(index)
    body += varint(len(key)) + key + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


RECORDS = b"".join(record(index) for index in range(2000))
HALF = len(RECORDS) // 2


def streamed(compressor):
    """A frame whose writer did not know how much there would be."""
    stream = compressor.compressobj()
    return stream.compress(RECORDS) + stream.flush()


def bad_header_checksum(frame):
    """What clients before KIP-57 wrote: the checksum of a header with the magic in it."""
    at = 6 if frame[4] & 8 == 0 else 14
    return frame[:at] + bytes([frame[at] ^ 0x55]) + frame[at + 1 :]


def gzip_with_name():
    member = gzip.compress(RECORDS, mtime=0)
    return member[:3] + b"\x08" + member[4:10] + b"records\0" + member[10:]


def independent(**options):
    return lz4.frame.compress(RECORDS, block_linked=False, **options)


zstd = zstandard.ZstdCompressor
FRAMINGS = {
    "gzip-kafka-python": kafka.codec.gzip_encode(RECORDS),
    "gzip-members": gzip.compress(RECORDS[:HALF], mtime=0) + gzip.compress(RECORDS[HALF:], mtime=0),
    "gzip-name": gzip_with_name(),
    "gzip-padded": gzip.compress(RECORDS, mtime=0) + b"\0" * 16,
    "snappy-kafka-python": kafka.codec.snappy_encode(RECORDS),
    "snappy-aiokafka": aiokafka.codec.snappy_encode(RECORDS),
    "snappy-raw": snappy.compress(RECORDS),
    "lz4-kafka-python": kafka.codec.lz4_encode(RECORDS),
    "lz4-aiokafka": aiokafka.codec.lz4_encode(RECORDS),
    "lz4-independent": independent(store_size=False),
    "lz4-content-size": independent(store_size=True),
    "lz4-checksums": independent(content_checksum=True, block_checksum=True),
    "lz4-block-4m": independent(block_size=lz4.frame.BLOCKSIZE_MAX4MB),
    "lz4-linked": lz4.frame.compress(RECORDS, block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB),
    "lz4-bad-header-checksum": bad_header_checksum(independent(store_size=False)),
    "zstd-kafka-python": kafka.codec.zstd_encode(RECORDS),
    "zstd-aiokafka": aiokafka.codec.zstd_encode(RECORDS),
    "zstd-size": zstd().compress(RECORDS),
    "zstd-no-size": streamed(zstd()),
    "zstd-checksum": streamed(zstd(write_checksum=True)),
    "zstd-frames": zstd().compress(RECORDS[:HALF]) + zstd().compress(RECORDS[HALF:]),
    "zstd-skippable": b"\x50\x2a\x4d\x18\x03\0\0\0abc" + zstd().compress(RECORDS),
    "zstd-level-19": zstd(level=19).compress(RECORDS),
}

if __name__ == "__main__":
    folder = pathlib.Path(__file__).parent / "framings"
    folder.mkdir(exist_ok=True)
    for name, framing in FRAMINGS.items():
        (folder / f"{name}.bin").write_bytes(framing)
