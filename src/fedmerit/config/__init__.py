"""Configuration: TOML to values, and names to parts."""
