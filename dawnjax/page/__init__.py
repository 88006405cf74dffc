"""Tables, figures and words for people: text, HTML, Markdown, CSV and SVG from one source each."""
