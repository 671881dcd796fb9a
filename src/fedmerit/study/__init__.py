"""Studies: rows (recipes or settings) x seeds, compared in pairs, with intervals.

Reading order: `plan` (what to compare), `study` (run it, read it), `scheduler` and `worker` (runs in processes),
`study_folder` (where things lie), `metrics` of runs, `statistics` of paired seeds, `verdicts` on rows, `tables`,
`cells`, `text_table` and `output` (for readers). Tuning: `grid` (what to try), `tuning` (on which seeds, by what
rule), `tune` (run it, read it), `tuning_tables`. `fairness` is about the rewards of one run.
"""
