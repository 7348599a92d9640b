"""Kafka's formats: conversion between bytes and values, without I/O, clock or logging.

There are two ways through a record batch. The *shallow* path (`record_batch`) reads and rewrites
only its header, which is enough for most batches of a copy. The *deep* path decodes the records:
read `record`, `decoding` and `encoding`, then `records`, their public interface. `kernels` has the
compiled loops of the deep path.

`joining` combines small batches, and `recompress` changes the codec of one. `requests` has Fetch
and Produce as lanes send them. `error_codes` is the table of Kafka's error codes.
"""
