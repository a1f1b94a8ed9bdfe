"""General tools that all other packages use: errors, checks, seeds, bits, memory, parallel work, storage, progress."""
