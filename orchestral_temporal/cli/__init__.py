"""The command line: parse, call the client, print. No decision is taken here."""
