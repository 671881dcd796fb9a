"""Studies: rows (recipes or settings) x seeds, paired, compared with intervals."""
