"""Configuration: TOML and names in, frozen sections and the parts they make out; `schema` has all the public names."""
