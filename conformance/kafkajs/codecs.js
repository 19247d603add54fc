// kafkajs brings gzip only; the others are registered here, as its documentation says.
'use strict'

const { CompressionCodecs, CompressionTypes } = require('kafkajs')
const lz4 = require('lz4js')
const { hash: xxh32 } = require('lz4js/xxh32')
const snappy = require('kafkajs-snappy')
const zstd = require('@bokuweb/zstd-wasm')

let zstdReady

CompressionCodecs[CompressionTypes.Snappy] = snappy

/** lz4js does not say that its blocks are independent, though one block is; Kafka demands the flag. */
function independentBlocks(frame) {
  frame[4] |= 0x20
  frame[6] = xxh32(0, frame, 4, 2) >> 8
  return frame
}

CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => Buffer.from(independentBlocks(lz4.compress(encoder.buffer))),
  decompress: async buffer => Buffer.from(lz4.decompress(buffer)),
})

CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => {
    await (zstdReady ||= zstd.init())
    return Buffer.from(zstd.compress(encoder.buffer, 3))
  },
  decompress: async buffer => {
    await (zstdReady ||= zstd.init())
    return Buffer.from(zstd.decompress(buffer))
  },
})

module.exports = {
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
