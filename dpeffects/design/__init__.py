"""Frame -> validated columns -> blocks of clipped, encoded rows, wherever they are."""
