"""`regard demo`: the whole story on this machine, from text to a translator that can be looked into."""
