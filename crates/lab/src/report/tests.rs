//! Properties of the whole document.
