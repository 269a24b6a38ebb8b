//! Files of rules: what is read, what is refused and why, and what is written.

mod loader;
mod mistakes;
mod normal_form;
mod rules;
