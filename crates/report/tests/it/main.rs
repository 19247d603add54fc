//! Documents of a made-up run and of the published numbers, looked at as their readers would.

mod exports;
mod fake;
mod first_screen;
mod pages;
