"""The datasets of the benchmarks, one module each (`qsl.dataset_kind`)."""
