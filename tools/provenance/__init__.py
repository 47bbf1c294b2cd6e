"""Statements of in-toto on our images, in their OCI layouts: from what each was made (SLSA) and what is in it (CycloneDX).

layout       an OCI layout, folder or archive: blobs by digest, and the index
images       one of our images in a layout: manifest, configuration, files of its layers
clone        what a commit holds
statements   the statements' content, made from values only
attachments  statements as referrers of an image
write        both statements of one image
verify       what does not match, as sentences
"""
