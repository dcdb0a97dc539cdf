//! What the program makes, and what a real kernel says of it, both ways.

mod kernel_oracle;
mod kernel_oracle_attach;
