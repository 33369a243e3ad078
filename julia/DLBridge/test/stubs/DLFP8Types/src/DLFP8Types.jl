# A stand-in for DLFP8Types: its types.
module DLFP8Types

primitive type Float8_E4M3FN 8 end
primitive type Float8_E4M3FNUZ 8 end
primitive type Float8_E5M2 8 end
primitive type Float8_E5M2FNUZ 8 end

end
