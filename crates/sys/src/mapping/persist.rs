//! Stores that reach persistent memory, and the fence that orders them.
//!
//! Large stores bypass the caches (`movntdq`); small ones, and the ends of large ones, are stored, and
//! their cache lines written back with the best instruction that the processor has. Intel SDM,
//! volume 1, "Programming with Persistent Memory"; AMD64 APM, volume 3.

/// The instruction that writes a cache line back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub enum Flush {
    /// Writes back, keeps the line.
    Clwb,
    /// Writes back, drops the line.
    Clflushopt,
    /// As that, and one at a time.
    Clflush,
}

impl Flush {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clwb => "clwb",
            Self::Clflushopt => "clflushopt",
            Self::Clflush => "clflush",
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count, _mm_sfence};

    use super::Flush;
    use crate::racing;

    /// Bytes in a cache line.
    const LINE: usize = 64;

    impl Flush {
        /// The best that this processor has.
        pub fn detect() -> Option<Self> {
            #[allow(unused_unsafe, reason = "safe in later compilers")]
            // SAFETY: every x86-64 processor has CPUID; leaf 7 is asked for only where it exists.
            let features = unsafe {
                match __cpuid(0).eax {
                    0..7 => 0,
                    _ => __cpuid_count(7, 0).ebx,
                }
            };
            Some(if features & 1 << 24 != 0 {
                Self::Clwb
            } else if features & 1 << 23 != 0 {
                Self::Clflushopt
            } else {
                Self::Clflush
            })
        }

        /// Writes back the cache line at `address`.
        ///
        /// # Safety
        /// The address is mapped.
        pub unsafe fn line(self, address: *mut u8) {
            // SAFETY: the address is mapped; the processor has the instruction (`detect`). None of
            // them changes memory or registers. Stores before it are kept before it: the block is
            // taken to read and write memory.
            unsafe {
                match self {
                    Self::Clwb => {
                        asm!("clwb [{}]", in(reg) address, options(nostack, preserves_flags))
                    }
                    Self::Clflushopt => {
                        asm!("clflushopt [{}]", in(reg) address, options(nostack, preserves_flags));
                    }
                    Self::Clflush => {
                        asm!("clflush [{}]", in(reg) address, options(nostack, preserves_flags));
                    }
                }
            }
        }

        /// Copies `source` to `target` on its way to the medium; there after [`fence`](Self::fence).
        ///
        /// # Safety
        /// `source.len()` bytes at `target` are writable and do not overlap `source`. Whoever
        /// accesses them meanwhile does so as [`racing::copy_in`] says.
        pub unsafe fn store(self, target: *mut u8, source: &[u8]) {
            let misaligned = target.align_offset(LINE).min(source.len());
            let (head, rest) = source.split_at(misaligned);
            let (lines, tail) = rest.split_at(rest.len() - rest.len() % LINE);
            // SAFETY: the three parts are those of the source, at the same distances from
            // `target`; the middle is aligned to a cache line there and made of whole lines.
            unsafe {
                self.store_part(target, head);
                stream(target.add(head.len()), lines);
                self.store_part(target.add(head.len() + lines.len()), tail);
            }
        }

        /// Less than a line, inside one.
        ///
        /// # Safety
        /// As `store`; the range does not cross a cache line.
        unsafe fn store_part(self, target: *mut u8, part: &[u8]) {
            if part.is_empty() {
                return;
            }
            // SAFETY: the caller's promise.
            unsafe {
                racing::copy_in(part, target);
                self.line(target);
            }
        }

        /// Everything stored or written back before is on the medium before anything after.
        pub fn fence(self) {
            #[allow(unused_unsafe, reason = "safe in later compilers")]
            // SAFETY: SSE, which every x86-64 processor has.
            unsafe {
                _mm_sfence();
            }
        }
    }

    /// Whole lines past the caches, and in order before all later stores.
    ///
    /// # Safety
    /// As `store`; `target` is aligned to a cache line, `lines` is made of whole ones.
    unsafe fn stream(target: *mut u8, lines: &[u8]) {
        if lines.is_empty() {
            return;
        }
        // SAFETY: SSE2, which every x86-64 processor has. Each turn moves the 64 bytes at `from` and
        // `to`, and there is one for each line; the lines lie in both ranges by the caller's promise.
        // The stores are to be seen in order by other threads when the block ends, as any are that
        // Rust knows: hence the fence. An instruction that a signal interrupts runs again.
        unsafe {
            asm!(
                "2:",
                "movdqu {a}, [{from}]",
                "movdqu {b}, [{from} + 16]",
                "movdqu {c}, [{from} + 32]",
                "movdqu {d}, [{from} + 48]",
                "movntdq [{to}], {a}",
                "movntdq [{to} + 16], {b}",
                "movntdq [{to} + 32], {c}",
                "movntdq [{to} + 48], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "sub {left}, 64",
                "jnz 2b",
                "sfence",
                from = inout(reg) lines.as_ptr() => _,
                to = inout(reg) target => _,
                left = inout(reg) lines.len() => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }
}

/// Elsewhere `msync` does it, on persistent memory too.
#[cfg(not(target_arch = "x86_64"))]
impl Flush {
    /// None is known.
    pub fn detect() -> Option<Self> {
        None
    }

    /// Never called: there is no value.
    ///
    /// # Safety
    /// None is needed.
    pub unsafe fn line(self, _address: *mut u8) {
        unreachable!("no instruction was detected")
    }

    /// Never called: there is no value.
    ///
    /// # Safety
    /// None is needed.
    pub unsafe fn store(self, _target: *mut u8, _source: &[u8]) {
        unreachable!("no instruction was detected")
    }

    /// Never called: there is no value.
    pub fn fence(self) {
        unreachable!("no instruction was detected")
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn every_alignment_and_length_is_stored_whole_and_nothing_else() {
        let detected = Flush::detect().unwrap();
        // Whatever has the newest also has the older ones; clflush is everywhere.
        for flush in [detected, Flush::Clflush] {
            for start in [0, 1, 8, 15, 16, 63, 64, 100] {
                for len in [0, 1, 4, 8, 16, 63, 64, 65, 127, 128, 200, 512] {
                    let source: Vec<u8> = (1..=250).cycle().take(len).collect();
                    let mut target = vec![0u8; 1024];
                    // SAFETY: 612 bytes are the most that are touched.
                    unsafe { flush.store(target.as_mut_ptr().add(start), &source) };
                    flush.fence();
                    assert_eq!(target[start..start + len], source);
                    assert!(target[..start].iter().all(|&byte| byte == 0));
                    assert!(target[start + len..].iter().all(|&byte| byte == 0));
                }
            }
        }
    }
}
