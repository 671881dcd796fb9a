"""Studies: compare rows (recipes or settings) over several seeds, with paired tests and intervals.

Reading order: `plan` (what to compare), `study` (run and read it), `workers` (runs in processes), `study_folder` (files
of a study), `metrics` of runs, `statistics` of paired seeds, `verdicts` on rows, `tables`, `text_table` and `output`.
Tuning: `grid` (points to try), `tuning` (the best point). `attacks`: rows that differ by an attack. About the clients
of one run: `fairness`, `contributions`, `suspects`.
"""
