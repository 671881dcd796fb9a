"""The data sets that tasks are made of, one file each; `tasks.registry` imports the one that is asked for."""
