"""Messages between the processes of a session, their codec and their state tables. No I/O in the protocol itself."""
