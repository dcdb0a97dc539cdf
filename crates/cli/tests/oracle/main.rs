//! Real kernels judge what the program and the engine make, and what they make of the kernels' own. A boot of each
//! kernel answers all its cases.

mod kernel_oracle;
