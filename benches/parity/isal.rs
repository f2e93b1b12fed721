//! Intel's ISA-L, loaded at run time if the machine has it; the project does not depend on it.

use std::cell::RefCell;
use std::ffi::{CStr, c_int, c_uchar, c_void};
use std::rc::Rc;

use super::Work;

/// The library's two raid functions: vectors in all, bytes of each, sources followed by targets.
type Generate = unsafe extern "C" fn(c_int, c_int, *mut *mut c_void) -> c_int;
type InitTables = unsafe extern "C" fn(c_int, c_int, *const c_uchar, *mut c_uchar);
type EncodeData =
    unsafe extern "C" fn(c_int, c_int, c_int, *const c_uchar, *mut *mut c_uchar, *mut *mut c_uchar);

/// The library's functions, and the tables of the last code asked for.
pub(crate) struct Isal {
    xor_gen: Generate,
    pq_gen: Generate,
    ec_init_tables: InitTables,
    ec_encode_data: EncodeData,
    /// Sources, targets, and 32 bytes of table for each pair: made once, as a caller of ISA-L would.
    tables: RefCell<(usize, usize, Rc<[u8]>)>,
}

impl Isal {
    /// Loads the library; `None` if it is not installed.
    pub(crate) fn load() -> Option<Self> {
        // SAFETY: dlopen of a system library by a constant name; it has no constructors with demands.
        let library = unsafe { libc::dlopen(c"libisal.so.2".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        let symbol = |name: &CStr| {
            // SAFETY: the handle is open and stays so; the name is NUL-terminated.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!symbol.is_null()).then_some(symbol)
        };
        let (xor_gen, pq_gen) = (symbol(c"xor_gen")?, symbol(c"pq_gen")?);
        let (init, encode) = (symbol(c"ec_init_tables")?, symbol(c"ec_encode_data")?);
        // SAFETY: the signatures are those of raid.h and erasure_code.h of ISA-L 2.
        unsafe {
            Some(Self {
                xor_gen: std::mem::transmute::<*mut c_void, Generate>(xor_gen),
                pq_gen: std::mem::transmute::<*mut c_void, Generate>(pq_gen),
                ec_init_tables: std::mem::transmute::<*mut c_void, InitTables>(init),
                ec_encode_data: std::mem::transmute::<*mut c_void, EncodeData>(encode),
                tables: RefCell::new((0, 0, Rc::from([]))),
            })
        }
    }

    /// Computes the xor of `data` into one target, or P and Q into two.
    pub(crate) fn generate<'a>(&'a self, targets: Vec<&'a mut [u8]>, data: Vec<&'a mut [u8]>) -> Work<'a> {
        let function = if targets.len() == 1 { self.xor_gen } else { self.pq_gen };
        let len = targets[0].len() as c_int;
        let vectors = data.into_iter().chain(targets);
        let mut vectors: Vec<*mut c_void> = vectors.map(|block| block.as_mut_ptr().cast()).collect();
        Box::new(move || {
            // SAFETY: all blocks are aligned to 256 bytes, of one length that is a multiple of 32, disjoint, and
            // borrowed for as long as this closure lives; sources are only read.
            let result = unsafe { function(vectors.len() as c_int, len, vectors.as_mut_ptr()) };
            assert_eq!(result, 0, "ISA-L refused its arguments");
        })
    }

    /// Computes `targets` from `data` by a general matrix: ones for P, powers of 2 for Q. A recovery
    /// costs ISA-L the same with other coefficients.
    pub(crate) fn encode<'a>(&'a self, targets: Vec<&'a mut [u8]>, data: Vec<&'a mut [u8]>) -> Work<'a> {
        let dimensions = (data.len(), targets.len());
        let mut cached = self.tables.borrow_mut();
        if (cached.0, cached.1) != dimensions {
            *cached = (dimensions.0, dimensions.1, self.tables_of(dimensions.0, dimensions.1).into());
        }
        let tables = Rc::clone(&cached.2);
        let len = targets[0].len() as c_int;
        let pointers = |blocks: Vec<&'a mut [u8]>| -> Vec<*mut u8> {
            blocks.into_iter().map(<[u8]>::as_mut_ptr).collect()
        };
        let (mut sources, mut outputs) = (pointers(data), pointers(targets));
        Box::new(move || {
            // SAFETY: the tables are of these dimensions; all blocks are of `len` bytes and borrowed for as long as
            // this closure lives; sources are only read.
            unsafe {
                (self.ec_encode_data)(
                    len,
                    sources.len() as c_int,
                    outputs.len() as c_int,
                    tables.as_ptr(),
                    sources.as_mut_ptr(),
                    outputs.as_mut_ptr(),
                );
            }
        })
    }

    fn tables_of(&self, sources: usize, targets: usize) -> Vec<u8> {
        let double = |value: u8| (value << 1) ^ if value & 0x80 == 0 { 0 } else { 0x1D };
        let powers = std::iter::successors(Some(1u8), |&value| Some(double(value)));
        let mut matrix: Vec<u8> = powers.take(sources).collect();
        if targets == 2 {
            matrix.splice(0..0, vec![1; sources]);
        }
        let mut tables = vec![0; 32 * sources * targets];
        // SAFETY: the matrix and the tables have the sizes the dimensions ask for.
        unsafe {
            (self.ec_init_tables)(sources as c_int, targets as c_int, matrix.as_ptr(), tables.as_mut_ptr());
        }
        tables
    }
}
