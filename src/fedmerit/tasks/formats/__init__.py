"""How files are read: each format to arrays, each mistake with the file it is about."""
