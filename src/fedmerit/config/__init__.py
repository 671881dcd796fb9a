"""Read and check configurations: TOML in, frozen sections and the parts they name out. Public names are in `schema`."""
