"""What releases tell about sets: sizes, overlaps, comparisons, with intervals."""
