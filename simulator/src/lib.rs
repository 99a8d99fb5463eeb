//! Event-driven simulation of clusters and traces, calling the very same `rgpu-placement` policies that the broker calls.
