"""Data sets of the built-in tasks, one file each; `tasks.registry` imports the requested one."""
