"""Studies: rows (recipes or settings) x seeds, compared in pairs, with intervals.

Reading order: `plan` (what to compare), `study` (run it, read it), `workers` (runs in processes),
`study_folder` (where things lie), `metrics` of runs, `statistics` of paired seeds, `verdicts` on rows, `tables`,
`text_table` and `output` (for readers). Tuning: `grid` (what to try), `tuning` (which point is best). `attacks`: rows
that differ by an attack. About the clients of one run: `fairness`, `contributions`, `suspects`.
"""
