//! Threads between which one thread of the system changes by itself.
//!
//! ```text
//!  the system's threads    main     1      2      3          each with its stack and its thread-locals
//!                           │       ┊      ┊      ┊          all but main sleep for good, on small stacks of their own
//!                           └─► main's, 1's, 2's or 3's:     `switch` changes the stack and the thread-locals
//! ```
//!
//! A change of turns costs no system call. A thread that has ended is used again, by later histories, too: its destructors
//! have run, and its thread-locals are as new.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::os::{self, real};
use super::scheduler;

/// Bytes of stack that each thread has. Those of this workspace ask for no more.
const STACK: usize = 2 << 20;
/// Words of stack for a thread of the system that only sleeps.
const SLEEPING_STACK: usize = 512;
/// Rounds in which destructors may leave something to destroy, as POSIX has them.
const ROUNDS: usize = 4;

pub type Start = extern "C" fn(*mut c_void) -> *mut c_void;
pub type Destructor = unsafe extern "C" fn(*mut c_void);

/// Task of a thread.
#[derive(Clone, Copy)]
pub struct Work {
    /// Its number in the simulation.
    pub number: usize,
    pub start: Start,
    pub argument: *mut c_void,
}

/// A thread: its stack, its thread-locals, and what is to be done with them.
pub struct Context {
    /// The stack pointer while it does not run.
    stack: Cell<usize>,
    /// The register by which code finds thread-locals.
    locals: usize,
    work: Cell<Option<Work>>,
    destructors: RefCell<Vec<(Destructor, *mut c_void)>>,
    /// Its thread of the system, and where its stack lies there, once it has asked.
    place: Cell<Option<(libc::pthread_t, StackPlace)>>,
}

/// A stack as the system tells of it: its lowest byte, its bytes, and those of them that are a fence.
#[derive(Clone, Copy)]
struct StackPlace {
    start: *mut c_void,
    len: usize,
    fence: usize,
}

thread_local! {
    /// The thread that runs, where it is one of [`FREE`]'s.
    static HOME: Cell<Option<&'static Context>> = const { Cell::new(None) };
}

struct Free(Vec<&'static Context>);

// SAFETY: only the one thread of the system that does not sleep takes contexts, and looks into them.
unsafe impl Send for Free {}

/// Threads that do nothing.
static FREE: Mutex<Free> = Mutex::new(Free(Vec::new()));
/// 1 as soon as a new thread of the system sleeps.
static SLEEPS: AtomicU32 = AtomicU32::new(0);
/// Destructors of values by key, as the program has made the keys.
static KEYS: Mutex<Vec<(libc::pthread_key_t, Destructor)>> = Mutex::new(Vec::new());

impl Context {
    /// The calling thread, for good.
    pub fn own() -> &'static Self {
        Box::leak(Box::new(Self {
            stack: Cell::new(0),
            locals: locals(),
            work: Cell::new(None),
            destructors: RefCell::default(),
            place: Cell::new(None),
        }))
    }

    /// A thread with something to do, once it gets its turn; the system's error number, where there is none to be had.
    pub fn with(work: Work) -> Result<&'static Self, c_int> {
        let free = free().0.pop();
        let context = free.map_or_else(create, Ok)?;
        context.work.set(Some(work));
        Ok(context)
    }

    /// Changes from the calling thread, which this is, to another. Comes back when another changes back.
    pub fn switch_to(&self, other: &Self) {
        // SAFETY: this is the calling thread, and the other does not run, so its stack pointer is one that `switch` has
        // left there, or `host`; nobody else goes on there, since the other threads of the system sleep for good.
        unsafe { switch(self.stack.as_ptr(), other.stack.get(), other.locals, has_register()) }
    }

    /// Ends what a thread has left: first the values of `thread_local!`, then those by key, as the C library does.
    fn destroy(&self) {
        for _ in 0..ROUNDS {
            loop {
                let Some((destructor, value)) = self.destructors.borrow_mut().pop() else { break };
                // SAFETY: the value was told together with its destructor, to be called at the end of this thread.
                unsafe { destructor(value) };
            }
            let key = |number: usize| KEYS.lock().unwrap_or_else(PoisonError::into_inner).get(number).copied();
            for (key, destructor) in (0..).map_while(key) {
                // SAFETY: the value was set by a key that was made with this destructor, which is called once, since the
                // value is taken away.
                unsafe {
                    let value = libc::pthread_getspecific(key);
                    if !value.is_null() && libc::pthread_setspecific(key, std::ptr::null()) == 0 {
                        destructor(value);
                    }
                }
            }
        }
        THREAD_LOCALS.get().expect("they are looked up before a thread starts").renew(self.locals);
    }
}

fn free() -> std::sync::MutexGuard<'static, Free> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new thread of the system, which gives its stack away.
fn create() -> Result<&'static Context, c_int> {
    THREAD_LOCALS.get_or_init(ThreadLocals::find);
    SLEEPS.store(0, Ordering::Relaxed);
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread: libc::pthread_t = 0;
    let place: Cell<Option<&'static Context>> = Cell::new(None);
    // SAFETY: the attributes are made before they are used.
    let created = unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK);
        let result = scheduler::bypass(|| {
            libc::pthread_create(&raw mut thread, attributes.as_ptr(), host, (&raw const place).cast_mut().cast())
        });
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        result
    };
    if created != 0 {
        return Err(created);
    }
    while SLEEPS.load(Ordering::Acquire) == 0 {
        os::futex(&SLEEPS, libc::FUTEX_WAIT, 0);
    }
    Ok(place.get().expect("the thread has left it here"))
}

/// Body of a thread of the system until it sleeps, and of the threads that run on its stack after that.
extern "C" fn host(place: *mut c_void) -> *mut c_void {
    let context = Context::own();
    // SAFETY: `create` waits, and does not look at it, until this thread sleeps.
    unsafe { *place.cast::<Option<&'static Context>>() = Some(context) };
    let words = Box::leak(Box::new(Aligned([0; SLEEPING_STACK])));
    let frame = &mut words.0[SLEEPING_STACK - FRAME..];
    frame[RETURNS_TO] = sleep as extern "C" fn() -> ! as usize;
    // SAFETY: the frame is one that `switch` would have left, with `sleep` to return to; the thread-locals stay the same.
    unsafe { switch(context.stack.as_ptr(), frame.as_ptr().expose_provenance(), context.locals, has_register()) };
    loop {
        // From here on by the one thread that does not sleep.
        let Work { number, start, argument } = context.work.take().expect("it was given something to do");
        HOME.set(Some(context));
        scheduler::begin(number);
        start(argument);
        let next = scheduler::end();
        context.destroy();
        free().0.push(context);
        context.switch_to(next);
    }
}

/// A stack, as the ABIs want it to lie.
#[repr(align(16))]
struct Aligned([usize; SLEEPING_STACK]);

/// Sleeps for good. Thread-locals, errno among them, belong to another now.
extern "C" fn sleep() -> ! {
    SLEEPS.store(1, Ordering::Release);
    os::futex(&SLEEPS, libc::FUTEX_WAKE, 1);
    loop {
        // SAFETY: no descriptors, for ever.
        unsafe { os::raw(libc::SYS_ppoll, [0; 6]) };
    }
}

/// Attributes of the calling thread, as `ask` has made them the first time, as far as its stack goes. An error number.
///
/// # Safety
/// `attributes` can be written, and `ask` makes them where it returns 0.
pub unsafe fn own_stack(
    thread: libc::pthread_t,
    attributes: *mut libc::pthread_attr_t,
    ask: impl FnOnce() -> c_int,
) -> c_int {
    let Some(home) = HOME.get() else { return ask() };
    if let Some((_, place)) = home.place.get().filter(|(known, _)| *known == thread) {
        // SAFETY: there is a place for attributes, as the caller says, which are made before they are set; the stack is one
        // that the system has made.
        return unsafe {
            match libc::pthread_attr_init(attributes) {
                0 => {
                    libc::pthread_attr_setguardsize(attributes, place.fence);
                    libc::pthread_attr_setstack(attributes, place.start, place.len)
                }
                error => error,
            }
        };
    }
    let error = ask();
    if error == 0 {
        let mut place = StackPlace { start: std::ptr::null_mut(), len: 0, fence: 0 };
        // SAFETY: they were made just now, as the caller says; each number has its place.
        let is_known = unsafe {
            libc::pthread_attr_getstack(attributes, &raw mut place.start, &raw mut place.len) == 0
                && libc::pthread_attr_getguardsize(attributes, &raw mut place.fence) == 0
        };
        home.place.set(is_known.then_some((thread, place)));
    }
    error
}

// ---- thread-locals ----

/// The thread-locals of this program, as they are in a new thread.
struct ThreadLocals {
    /// Where they are in a thread, from its register.
    offset: usize,
    size: usize,
    initial: &'static [u8],
}

static THREAD_LOCALS: OnceLock<ThreadLocals> = OnceLock::new();

impl ThreadLocals {
    fn find() -> Self {
        extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
            // SAFETY: dl_iterate_phdr(3) shows a program that is loaded, with so many headers; the first is this one,
            // which is never unloaded, and whose thread-locals each thread has from its beginning. `found` is below.
            unsafe {
                let info = &*info;
                let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
                if let Some(header) = headers.iter().find(|header| header.p_type == libc::PT_TLS) {
                    let start = std::ptr::with_exposed_provenance((info.dlpi_addr + header.p_vaddr) as usize);
                    *found.cast::<Option<ThreadLocals>>() = Some(ThreadLocals {
                        offset: info.dlpi_tls_data.addr().wrapping_sub(locals()),
                        size: header.p_memsz as usize,
                        initial: std::slice::from_raw_parts(start, header.p_filesz as usize),
                    });
                }
            }
            1
        }
        let mut found = None;
        // SAFETY: `look` fits what is given to it.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
        found.expect("this program has thread-locals")
    }

    /// Makes those of a thread as new.
    fn renew(&self, locals: usize) {
        let start = std::ptr::with_exposed_provenance_mut::<u8>(locals.wrapping_add(self.offset));
        // SAFETY: the program's thread-locals of the calling thread, whose destructors have run; nobody holds a reference
        // to one, and all of them are set by the bytes of the program's file, with zeros behind them.
        unsafe {
            start.copy_from_nonoverlapping(self.initial.as_ptr(), self.initial.len());
            start.add(self.initial.len()).write_bytes(0, self.size - self.initial.len());
        }
    }
}

/// Registers a destructor of a thread-local, which C++ and Rust do by this name.
///
/// # Safety
/// `destructor` can be called with `value` at the end of the calling thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cxa_thread_atexit_impl(
    destructor: Destructor,
    value: *mut c_void,
    program: *mut c_void,
) -> c_int {
    let Some(home) = HOME.get() else {
        return real!(
            __cxa_thread_atexit_impl(destructor, value, program) as fn(Destructor, *mut c_void, *mut c_void) -> c_int
        );
    };
    home.destructors.borrow_mut().push((destructor, value));
    0
}

/// Makes a key, and notes its destructor.
///
/// # Safety
/// As its manual page has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_key_create(key: *mut libc::pthread_key_t, destructor: Option<Destructor>) -> c_int {
    let result =
        real!(pthread_key_create(key, destructor) as fn(*mut libc::pthread_key_t, Option<Destructor>) -> c_int);
    if let (0, Some(destructor)) = (result, destructor) {
        // SAFETY: it was written just now.
        let key = unsafe { *key };
        KEYS.lock().unwrap_or_else(PoisonError::into_inner).push((key, destructor));
    }
    result
}

// ---- registers ----

/// Words that `switch` leaves on a stack, and which of them is the address at which it goes on.
#[cfg(target_arch = "x86_64")]
const FRAME: usize = 8;
#[cfg(target_arch = "x86_64")]
const RETURNS_TO: usize = 6;
#[cfg(target_arch = "aarch64")]
const FRAME: usize = 20;
#[cfg(target_arch = "aarch64")]
const RETURNS_TO: usize = 1;

/// Tells if the register of thread-locals can be written without the system.
#[cfg(target_arch = "x86_64")]
fn has_register() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    const FSGSBASE: u64 = 2;
    // SAFETY: it has no preconditions.
    *HAS.get_or_init(|| unsafe { libc::getauxval(libc::AT_HWCAP2) } & FSGSBASE != 0)
}

#[cfg(target_arch = "aarch64")]
fn has_register() -> bool {
    true
}

/// The calling thread's register of thread-locals.
#[cfg(target_arch = "x86_64")]
fn locals() -> usize {
    let locals: usize;
    // SAFETY: the first word there is its own address, by the ABI; nothing is changed.
    unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) locals, options(nostack, readonly, preserves_flags)) };
    locals
}

#[cfg(target_arch = "aarch64")]
fn locals() -> usize {
    let locals: usize;
    // SAFETY: nothing is changed.
    unsafe { std::arch::asm!("mrs {}, tpidr_el0", out(reg) locals, options(nostack, nomem, preserves_flags)) };
    locals
}

/// Leaves the registers that a function keeps on this stack, whose pointer goes to `from`, and goes on at the stack `to`
/// with the thread-locals at `locals`. Without `has_register` the system writes that register (`arch_prctl`).
///
/// # Safety
/// A call of this function has left `to`, or it is such a frame; nobody has gone on there since. `from` can be written.
/// `locals` are those of the thread whose stack that is. Settings of the floating-point unit are not changed, which nobody
/// does.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn switch(from: *mut usize, to: usize, locals: usize, has_register: bool) {
    std::arch::naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "test cl, cl",
        "jz 2f",
        "wrfsbase rdx",
        "jmp 3f",
        "2:",
        "mov eax, {arch_prctl}",
        "mov edi, 0x1002", // ARCH_SET_FS
        "mov rsi, rdx",
        "syscall",
        "3:",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        arch_prctl = const libc::SYS_arch_prctl,
    )
}

/// The same on ARM.
///
/// # Safety
/// As above.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn switch(from: *mut usize, to: usize, locals: usize, has_register: bool) {
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-160]!",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "mov x9, sp",
        "str x9, [x0]",
        "mov sp, x1",
        "msr tpidr_el0, x2",
        "ldp x19, x20, [sp, #16]",
        "ldp x21, x22, [sp, #32]",
        "ldp x23, x24, [sp, #48]",
        "ldp x25, x26, [sp, #64]",
        "ldp x27, x28, [sp, #80]",
        "ldp d8, d9, [sp, #96]",
        "ldp d10, d11, [sp, #112]",
        "ldp d12, d13, [sp, #128]",
        "ldp d14, d15, [sp, #144]",
        "ldp x29, x30, [sp], #160",
        "ret",
    )
}
