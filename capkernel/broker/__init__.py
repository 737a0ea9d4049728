"""May this effect happen, and do it: scopes, handles, files, sinks, audit."""
