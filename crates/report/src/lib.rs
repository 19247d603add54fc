//! What was measured, as documents: HTML, Markdown with SVG, CSV, JSON. Pure: returns texts, writes no file.
