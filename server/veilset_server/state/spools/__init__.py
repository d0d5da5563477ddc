"""The files in which uploads wait until they are finished."""
