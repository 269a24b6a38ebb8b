//! Automata against plain forms: matches, images, regular expressions.

mod image;
mod matches;
mod regexes;
