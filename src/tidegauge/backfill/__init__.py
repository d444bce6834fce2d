"""An output's past, staged unit by unit before anybody sees it: pure values; `flow` carries them out."""
