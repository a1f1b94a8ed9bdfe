"""What every room uses: errors, checks, seeds, bits, memory, parallel work, storage, progress."""
