//! The four codecs of record batches, with bounds on what they may expand to
