"""Tables, figures and reports: terminal, Markdown, PNG."""
